// Package host judges facts of a host that serves: its driver, devices, Python
// environment, limits and variables. Facts are recorded once, by Collect on that host,
// and judged by pure functions anywhere.
package host
