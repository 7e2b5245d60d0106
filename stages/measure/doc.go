// Package measure is the stage kind that replays a workload against a service in
// open loop and leaves one record per request. The schedule is decided, hashed
// and durable before the first request; records are flushed every second; the
// result is a fold over the records as they lie in the log.
package measure
