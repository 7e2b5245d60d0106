// Package service checks a service that has just come up, before it is measured:
// from the documents that it has answered with, each asked for once. Documents are
// read leniently, as nesting and spelling differ between versions; what one does not
// say is unknown, which is not a pass.
package service
