// Package preflight decides whether everything is in place before anything is
// spent. Its sub-packages hold the checks, one subject each: small functions
// over facts that are handed to them, which return one finding for everything
// they looked at, passes included. They start nothing and write nothing.
package preflight
