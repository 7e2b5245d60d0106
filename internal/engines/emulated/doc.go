// Package emulated is the built-in serving engine: a real HTTP server with an
// OpenAI-compatible API whose latencies are made up.
//
// Nothing is computed. A request's output is drawn from (seed, model, prompt),
// its times from (seed, model, prompt, max_tokens), so equal requests get equal
// answers at equal times, whatever else is going on: requests do not contend.
// Token i is due at an absolute time after the request arrived,
//
//	(prefill_base + prefill_per_token*input)*j0 + sum over k=1..i of decode_per_token*jk
//
// divided by time_scale, with jk = 1 + jitter*u, u uniform in [-1, 1). It is sent
// when it is due, never before; how much later is for the reader to find out, from
// the emission log, which holds the due time of every chunk and the times before
// and after it was written.
//
// With Config.Serving requests contend instead: a model of a serving system
// (internal/serving) on the wall clock says when each token is due.
//
// A personality gives it the endpoints, checks and errors of another server; see
// docs/simulator.md for what each has.
//
// A text prompt counts one token for each word between white space.
//
// Every answer carries "Server: assay-emulated", and every model is owned by
// "assay-emulated", so that no number from here passes for a real one. It can be
// told to misbehave (Fault), for tests of clients.
package emulated
