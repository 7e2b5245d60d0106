// Package compare says how results differ, pair by pair. A pair is the same
// repetition at the same point of a matrix, under a baseline and under a candidate.
// A pair is compared only when it is alike in everything but what is compared: the
// same requests with the same prompts, lengths and times, answered at the same
// lengths, none failed, by the same engines under the same conditions. Otherwise the
// comparison is refused, and says why: a difference between unlike things explains
// nothing.
//
// It is pure: what it reads are results, records, schedules and conditions as they are
// archived, and equal inputs give equal comparisons.
package compare
