// Package durable writes files so that after a crash or a power loss each is
// there whole or not at all: a temporary file in the same folder, write, fsync,
// rename, fsync of the folder. It also holds append-only files for journals,
// same-host locks, and folder writers confined by os.Root.
//
// Every mutating system call first asks the hook (SetHook), so a test can count
// writes, fail them as a full disk would, or kill the process at each of them.
//
// Renames and locks are trusted only as far as the file system keeps its
// promises: see the warning about shared disks in archive/FORMAT.md.
package durable
