// Package load is the stage kind that brings models up: it deploys them on a
// service, waits until each replica is ready by the service's own snapshot, and asks
// each for one exact answer. What a cold load, a hit in the cache of weights in host
// memory and a switch of the device's model cost is told apart, by the order of
// requests and, where the service counts, by its counters. It evicts nothing by
// itself and undeploys when told to.
//
// What a service tells is read leniently: a field that is missing or has another
// form is not told, never 0. Everything it answered is archived as it came.
package load
