// System calls that end the process: no library of this program makes them, and an attacker would use them to leave the
// confinement. Included only by confine.c.
A(ptrace) A(process_vm_readv) A(process_vm_writev) A(process_madvise) A(kcmp) A(pidfd_getfd)
A(bpf) A(userfaultfd) A(io_uring_setup) A(io_uring_enter) A(io_uring_register)
A(add_key) A(request_key) A(keyctl)
A(unshare) A(setns) A(chroot) A(pivot_root) A(mount) A(umount2) A(open_tree) A(move_mount) A(fsopen) A(fsmount)
A(init_module) A(finit_module) A(delete_module) A(kexec_load) A(reboot) A(swapon) A(swapoff) A(acct) A(quotactl)
A(personality) A(shmat) A(remap_file_pages) A(move_pages) A(migrate_pages)
A(open_by_handle_at) A(name_to_handle_at) A(fanotify_init) A(settimeofday) A(clock_settime) A(adjtimex) A(sethostname)
A(setdomainname) A(vhangup)
#ifdef SYS_kexec_file_load
A(kexec_file_load)
#endif
#ifdef SYS_iopl
A(iopl) A(ioperm) A(modify_ldt)
#endif
