// Package statcache remembers what was read, so that it need not be read again.
//
// A Table is a file of fixed-size rows that is only ever appended to or replaced
// whole. Losing it, or any part of it, costs time and nothing else.
//
// Files is the table from what stat says of a file to the SHA-256 of its
// content. A row is trusted only when device, inode, size, modification time and
// change time are the same, and when both times were older than the moment the
// reading began by more than the file system's granularity: otherwise a write
// right after the reading could leave them all as they are. A program cannot set
// the change time, so one that keeps size and modification time is seen too.
//
// What no such cache can see: a program that had the file mapped and written to
// before it was read, and writes to it through the same mapping until the kernel
// next writes the page out; a disk that changes by itself; a system clock that is
// set back to the very nanosecond. Whoever fears that reads anew.
package statcache
