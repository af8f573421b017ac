//! How the process's allocator treats large pieces of memory.
//!
//! The program decides this once, at its start: the allocator belongs to the process and not to any
//! library in it.

/// Makes the allocator take every large piece from the system and give it back as soon as it is
/// freed. Holds for the whole process; what it holds already is not affected.
///
/// By itself glibc does so until the first large piece is freed. From then on it takes pieces of
/// that length from its arenas, of which it has eight for each processor, and an arena gives only
/// what lies at its end back to the system. The blocks of files whose sessions come and go then
/// leave a server with many times the memory that it uses. Pieces are large from 128 KiB on, which
/// is where glibc begins. Other allocators are left as they are.
pub fn give_back_large() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes two numbers, may be called at any time, and locks what it changes.
    // Where it refuses, memory is kept as it would be without it.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

/// glibc's own threshold at the start of a process.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 128 << 10;
