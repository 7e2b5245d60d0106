package statcache

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Disk is what kind of file system a path lies on.
type Disk string

// The kinds of file systems.
const (
	Local   Disk = "local"   // keeps inodes, and stamps changes with this host's clock
	Memory  Disk = "memory"  // gone at the next boot, after which its inodes begin anew
	Network Disk = "network" // other hosts may write to it
	Other   Disk = "other"   // not known to this program
)

type diskKind struct {
	name string
	kind Disk
}

// disks are file systems by the number that statfs gives.
var disks = map[uint32]diskKind{
	unix.EXT4_SUPER_MAGIC: {"ext4", Local}, unix.XFS_SUPER_MAGIC: {"xfs", Local}, unix.BTRFS_SUPER_MAGIC: {"btrfs", Local},
	unix.F2FS_SUPER_MAGIC: {"f2fs", Local}, unix.OVERLAYFS_SUPER_MAGIC: {"overlay", Local}, 0x2fc12fc1: {"zfs", Local}, 0xca451a4e: {"bcachefs", Local},
	unix.TMPFS_MAGIC: {"tmpfs", Memory}, unix.RAMFS_MAGIC: {"ramfs", Memory},
	unix.NFS_SUPER_MAGIC: {"nfs", Network}, unix.SMB_SUPER_MAGIC: {"smb", Network}, unix.SMB2_SUPER_MAGIC: {"smb2", Network}, unix.CIFS_SUPER_MAGIC: {"cifs", Network},
	unix.AFS_SUPER_MAGIC: {"afs", Network}, unix.CEPH_SUPER_MAGIC: {"ceph", Network}, unix.CODA_SUPER_MAGIC: {"coda", Network}, unix.OCFS2_SUPER_MAGIC: {"ocfs2", Network},
	unix.V9FS_MAGIC: {"9p", Network}, unix.NCP_SUPER_MAGIC: {"ncp", Network}, 0x0bd00bd0: {"lustre", Network}, 0x47504653: {"gpfs", Network}, 0x19830326: {"beegfs", Network},
	0x01161970: {"gfs2", Network}, 0xaad7aaea: {"panfs", Network}, 0x20030528: {"orangefs", Network}, 0x786f4256: {"vboxsf", Network}, 0xbacbacbc: {"vmhgfs", Network},
	unix.FUSE_SUPER_MAGIC: {"fuse", Other}, unix.MSDOS_SUPER_MAGIC: {"fat", Other}, unix.EXFAT_SUPER_MAGIC: {"exfat", Other},
}

// DiskOf says on what kind of file system a path lies, and how it is called.
func DiskOf(path string) (kind Disk, name string, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Other, "", fmt.Errorf("file system of %s: %w", path, err)
	}
	if d, ok := disks[uint32(st.Type)]; ok {
		return d.kind, d.name, nil
	}
	return Other, fmt.Sprintf("file system 0x%x", uint32(st.Type)), nil
}

// LocalDisk says whether path lies on a file system of this host that is known
// to keep inodes and to stamp changes with this host's clock.
//
// A tmpfs is none: after a reboot it gives the same device and inode numbers to
// other files, at times that may be the same too where the clock is set late.
func LocalDisk(path string) bool {
	kind, _, err := DiskOf(path)
	return err == nil && kind == Local
}
