package observe

import "golang.org/x/sys/unix"

const rusageThread = unix.RUSAGE_THREAD
