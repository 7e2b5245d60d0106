// Package supervise starts child processes so that nothing outlives this one,
// whatever happens to it.
//
// Every child runs below a supervisor: this program's own executable, started
// again as "worker supervise". The supervisor is the subreaper of everything the
// child starts, so a descendant that makes its own session or forks twice stays
// in its tree. It holds a pipe whose other end only this process has; when that
// closes, be it by kill -9, it kills the tree. The child dies with the supervisor
// (PDEATHSIG), and every process of the tree carries MarkerEnv in its
// environment, so that Sweep finds what is left should both be killed at once.
//
// A process counts as ended when its whole tree has ended and its output has
// been read. What the root leaves behind is asked to stop and then killed.
//
// Linux only in full: elsewhere a child gets a process group, which is killed.
package supervise
