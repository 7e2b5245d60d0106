// Package remote moves runs between a store and OCI registries.
//
// What is sent is what lies in the store, byte for byte: the run's digest is the
// same on both sides. What is received is hostile until it hashes to its digest,
// and enters the store only then. A transfer that was cut short goes on where it
// was: blobs that are there are not sent or fetched again, and an upload that
// the registry still knows is continued.
//
// Credentials come from the files of Docker and Podman. They are sent to the
// registry they are for and to the token service that it names, to no host
// that a redirect leads to, and never into a message.
package remote
