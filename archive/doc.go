// Package archive is the store: an OCI image layout whose images are runs, with
// the stage records, trees and blobs they are made of. FORMAT.md describes every
// byte of it.
//
// Invariants: a blob's bytes hash to its name; what names a blob is written
// after the blob is durable; a run exists from the moment index.json names it;
// nothing but index.json and the record index is ever replaced. Everything that
// is read from a store, another layout, a tar or an extracted folder is taken as
// hostile until its digest and its shape are checked.
//
// The package knows no stages: it satisfies the interface that the pipeline
// declares and is handed documents.
package archive
