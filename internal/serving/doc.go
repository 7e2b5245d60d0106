// Package serving is a model of a system that serves many language models on few
// devices: latencies fitted from profiles, workers with their queues, and the
// policies that place requests. It is an event loop over a clock (Clock): on the
// virtual clock it is a simulator, which computes as fast as it can; on the wall's,
// as Live, it serves requests as they come.
//
// Times are whole milliseconds and end in Ms; lengths are tokens. Everything is
// deterministic: events are ordered by time and then by their creation, and no
// policy draws random numbers. What it computes, and what it leaves out, is in
// docs/simulator.md.
package serving
