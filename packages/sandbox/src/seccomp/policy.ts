import { wordsOf } from './syscall-table.ts'

/**
 * What a sandbox may not ask of the kernel. Everything known that is not listed here is allowed; a system call
 * that this table does not know, because it is newer, does not exist inside.
 *
 * `missing` answers ENOSYS, as a kernel without the feature would: programs then take another way. `refused`
 * answers EPERM.
 */
export const POLICY: SeccompPolicy = {
  missing: wordsOf(`
    io_uring_setup io_uring_enter io_uring_register
    userfaultfd
    bpf
    clone3
    fsopen fsconfig fsmount fspick open_tree open_tree_attr move_mount mount_setattr statmount listmount
    lsm_set_self_attr
    memfd_secret`),
  refused: wordsOf(`
    mount umount2 pivot_root chroot
    unshare setns
    ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise process_mrelease
    add_key request_key keyctl
    perf_event_open
    kexec_load kexec_file_load reboot
    init_module finit_module delete_module create_module get_kernel_syms query_module
    swapon swapoff
    acct quotactl quotactl_fd
    settimeofday clock_settime adjtimex clock_adjtime
    sethostname setdomainname vhangup
    iopl ioperm modify_ldt
    syslog lookup_dcookie
    open_by_handle_at name_to_handle_at
    fanotify_init fanotify_mark
    mbind set_mempolicy set_mempolicy_home_node get_mempolicy move_pages migrate_pages
    nfsservctl sysfs ustat uselib _sysctl vserver afs_syscall getpmsg putpmsg tuxcall security
    personality`),
  checked: {
    // New namespaces by clone: the argument is masked, so that threads and processes still work.
    clone: { argument: 0, refuseAnyOf: 0x7e02_0080 },
    // Typing into the terminal of whoever started us: TIOCSTI and TIOCLINUX.
    ioctl: { argument: 1, refuseEqual: [0x5412, 0x541c] },
    // AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK; no vsock (not confined by network namespaces), packet, alg …
    socket: { argument: 0, allowEqual: [1, 2, 10, 16] },
    socketpair: { argument: 0, allowEqual: [1] },
  },
}

export interface SeccompPolicy {
  missing: readonly string[]
  refused: readonly string[]
  /** Decided by one 32-bit argument. */
  checked: Record<string, ArgumentCheck>
}

export type ArgumentCheck =
  | { argument: number; refuseAnyOf: number }
  | { argument: number; refuseEqual: readonly number[] }
  | { argument: number; allowEqual: readonly number[] }
