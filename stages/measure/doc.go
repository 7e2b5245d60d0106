// Package measure is the stage kind that sends planned requests to a service, in
// open or closed loop, and leaves one record each. The schedule is decided, hashed
// and durable before the first request; records are flushed every second; the
// result is a fold over the records as they lie in the log.
package measure
