// Package engines starts the serving processes of experiments, or attaches to
// running ones, and says when they are ready and when they are gone.
//
// A started service listens on a port of the loopback interface, lives under a
// supervisor, so that nothing of it outlives this process, sees a small
// environment, and has its whole output in LogDir/service.log, from which values
// of secrets are cut out. A service is ready when its readiness path answers 200,
// its log matched a pattern, or both, as configured. One that dies before is an
// error at once, with the end of its log.
//
// It knows nothing of stages or experiments: its input is a service's resolved
// keys, as schemas.Engines describes them.
package engines
