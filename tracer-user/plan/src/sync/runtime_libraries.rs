//! Runtime libraries of languages: the dynamic loader, the C library, the unwinder, the C++ library. The locks
//! that they take for themselves order nothing of the program's, as those of allocators: no program can rely on
//! two threads' exceptions meeting in the loader's lock.

/// Extent of a library's own lock operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// All that its code does: whatever it does for its callers is probed as a function of its own.
    Calls,
    /// Operations on the library's own data. Its code also takes the locks that are members of the program's
    /// objects.
    Data,
}

/// A library, by how its file's name begins.
struct Library {
    start: &'static str,
    own: Own,
}

const fn library(start: &'static str, own: Own) -> Library {
    Library { start, own }
}

/// Runtime libraries, each with the reason.
const LIBRARIES: [Library; 19] = [
    // The list of loaded objects (`dl_iterate_phdr`, which exceptions and backtraces walk through), `dlopen`, and the
    // thread-local storage of new threads: `_dl_load_lock`, `_dl_load_write_lock`, `_dl_load_tls_lock`.
    library("ld-linux", Own::Calls),
    library("ld-musl", Own::Calls),
    library("ld64.so", Own::Calls),
    library("ld-2.", Own::Calls),
    // Exit handlers, streams, locales, users and hosts, and whatever it does once.
    library("libc.so", Own::Calls),
    library("libc-2.", Own::Calls),
    library("libc.musl", Own::Calls),
    // Parts of it that are files of their own, all of them in older versions.
    library("libpthread", Own::Calls),
    library("libdl.so", Own::Calls),
    library("libdl-2.", Own::Calls),
    library("librt.so", Own::Calls),
    library("librt-2.", Own::Calls),
    library("libresolv", Own::Calls),
    library("libnss_", Own::Calls),
    // The unwinder: `object_mutex`, over the tables that are registered.
    library("libgcc_s", Own::Calls),
    library("libunwind", Own::Calls),
    // The locale's mutex, the reserve of memory for exceptions, the mutexes behind
    // `std::atomic<std::shared_ptr>`; but `std::condition_variable::wait` and `std::thread::join` are here,
    // too, and are about the program's objects.
    library("libstdc++", Own::Data),
    library("libc++.so", Own::Data),
    library("libc++abi", Own::Data),
];

/// Prefixes of the symbols of functions that are the same where they are linked into the program.
const PREFIXES: [&str; 30] = [
    "_dl_",
    "__dl_",
    "dl_iterate_phdr",
    "__tls_get_addr",
    "_Unwind_",
    "__register_frame",
    "__deregister_frame",
    "__cxa_",
    "_ZNSt6locale",
    // Streams and locales of glibc; most public names of `stdio.h` are aliases of the first.
    "_IO_",
    "__libc_",
    "__printf",
    "__vfprintf",
    "__vfwprintf",
    "_nl_",
    // Those of musl.
    "__stdio_",
    "__lockfile",
    "__unlockfile",
    "__fwritex",
    "__toread",
    "__towrite",
    "__ofl_",
    "printf_core",
    "locking_",
    // Threads of musl: its list of them, the thread-local storage of a new one, and the counter of threads that must
    // not unmap memory.
    "__pthread_",
    "__tl_",
    "__copy_tls",
    "__init_tp",
    "__timedwait",
    "__vm_",
];

/// Symbols of `stdio.h`, whose functions access the streams of the C library.
const STDIO: [&str; 52] = [
    "clearerr",
    "dprintf",
    "fclose",
    "fdopen",
    "feof",
    "ferror",
    "fflush",
    "fgetc",
    "fgets",
    "flockfile",
    "fopen",
    "fprintf",
    "fputc",
    "fputs",
    "fread",
    "freopen",
    "fscanf",
    "fseek",
    "fseeko",
    "ftell",
    "ftello",
    "ftrylockfile",
    "funlockfile",
    "fwrite",
    "getc",
    "getchar",
    "getdelim",
    "getline",
    "perror",
    "printf",
    "putc",
    "putchar",
    "puts",
    "rewind",
    "scanf",
    "setbuf",
    "setvbuf",
    "snprintf",
    "sprintf",
    "sscanf",
    "ungetc",
    "vdprintf",
    "vfprintf",
    "vfscanf",
    "vprintf",
    "vscanf",
    "vsnprintf",
    "vsprintf",
    "vsscanf",
    "__overflow",
    "__uflow",
    "__underflow",
];

/// Returns the extent of a library's own lock operations, by its file's name.
#[must_use]
pub fn own(file_name: &str) -> Option<Own> {
    LIBRARIES.iter().find(|library| file_name.starts_with(library.start)).map(|library| library.own)
}

/// Returns whether a function, by its symbol, belongs to a runtime library, whatever file it is in: its locks
/// and its data are the runtime's.
#[must_use]
pub fn is_own_function(symbol: &str) -> bool {
    PREFIXES.iter().any(|start| symbol.starts_with(start)) || STDIO.contains(&symbol)
}

/// Relation between a C library function's access and the request of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// Reads and writes exactly the requested bytes: copies and fills, and code of containers.
    Exact,
    /// Writes the requested bytes, and may read further: vector instructions look for the end of a string
    /// behind it, too.
    Writes,
}

/// Starts of names of functions that copy or fill exactly as many bytes as requested, without leading
/// underscores.
const EXACT: [&str; 6] = ["memcpy", "memmove", "mempcpy", "memset", "bzero", "explicit_bzero"];

/// Starts of names of functions that write exactly the requested bytes, and read until they find something.
const WRITING: [&str; 6] = ["strcpy", "strncpy", "stpcpy", "stpncpy", "strcat", "strncat"];

/// Starts of the symbols of functions in which GNU's C++ library does what its templates leave to it: they link nodes
/// of trees and lists, and decide on the sizes of hash tables, for the containers of their callers.
const CONTAINERS: [&str; 9] = [
    "_ZSt29_Rb_tree_insert_and_rebalance",
    "_ZSt28_Rb_tree_rebalance_for_erase",
    "_ZSt18_Rb_tree_increment",
    "_ZSt18_Rb_tree_decrement",
    "_ZNSt8__detail15_List_node_base",
    "_ZNKSt8__detail20_Prime_rehash_policy",
    "_ZNSt15_List_node_base",
    "_ZSt20_Rb_tree_rotate_left",
    "_ZSt21_Rb_tree_rotate_right",
];

/// Start of the symbols of `std::string`, and of those of its members there that change one.
const STRING: &str = "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE";
const STRING_MEMBERS: [&str; 9] = [
    "9_M_append",
    "9_M_assign",
    "10_M_replace",
    "14_M_replace_aux",
    "9_M_mutate",
    "8_M_erase",
    "9push_back",
    "6resize",
    "7reserve",
];

/// Members of `std::string` that the others consist of.
pub const STRING_STEPS: [&str; 3] = [
    "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE9_M_appendEPKcm",
    "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE9_M_mutateEmmPKcm",
    "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE10_M_replaceEmmPKcm",
];

/// Starts of names of functions that only read.
const READING: [&str; 8] =
    ["strlen", "strnlen", "strcmp", "strncmp", "strchr", "strrchr", "memcmp", "memchr"];

/// Returns whether a function of a C++ library, by its symbol, accesses a container of its caller as its caller's code
/// does where the compiler makes that from a template.
#[must_use]
pub fn is_container(symbol: &str) -> bool {
    CONTAINERS.iter().any(|start| symbol.starts_with(start)) || is_string(symbol)
}

/// Returns whether it is a member of `std::string`.
#[must_use]
pub fn is_string(symbol: &str) -> bool {
    let member = symbol.strip_prefix(STRING);
    member.is_some_and(|name| STRING_MEMBERS.iter().any(|start| name.starts_with(start)))
}

/// Returns the contract of a function of a C library, by its symbol: `__memmove_avx_unaligned_erms`, `strcpy`.
#[must_use]
pub fn contract(symbol: &str) -> Option<Contract> {
    if is_container(symbol) {
        return Some(Contract::Exact);
    }
    let name = symbol.trim_start_matches('_');
    let is_of = |names: &[&str]| names.iter().any(|start| name.starts_with(start));
    if is_of(&EXACT) { Some(Contract::Exact) } else { is_of(&WRITING).then_some(Contract::Writes) }
}

/// Returns true if a function of the program itself is a C library's, linked in, that reads further than
/// requested: one of several for different processors.
#[must_use]
pub fn is_vector_function(symbol: &str) -> bool {
    const PROCESSORS: [&str; 5] = ["_sse", "_avx", "_evex", "_ssse", "_x86_64"];
    let name = symbol.trim_start_matches('_');
    symbol.starts_with("__")
        && READING.iter().chain(&WRITING).any(|start| name.starts_with(start))
        && PROCESSORS.iter().any(|processor| name.contains(processor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_names() {
        assert_eq!(own("ld-linux-x86-64.so.2"), Some(Own::Calls));
        assert_eq!(own("libc.so.6"), Some(Own::Calls));
        assert_eq!(own("libc-2.31.so"), Some(Own::Calls));
        assert_eq!(own("libstdc++.so.6.0.33"), Some(Own::Data));
        for other in ["libcrypto.so.3", "libcurl.so.4", "bank", "libcc.so", "libuv.so.1", "ld"] {
            assert_eq!(own(other), None, "{other}");
        }
    }

    #[test]
    fn contracts_are_known_by_names() {
        assert_eq!(contract("__memmove_avx_unaligned_erms"), Some(Contract::Exact));
        assert_eq!(contract("__strcpy_avx2"), Some(Contract::Writes));
        let insert = "_ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_";
        assert_eq!(contract(insert), Some(Contract::Exact));
        let append = format!("{STRING}9_M_appendEPKcm");
        assert!(is_string(&append) && is_container(&append) && !is_string(insert));
        assert!(!is_container(&format!("{STRING}D1Ev")), "nobody else has one that ends");
        for other in ["__strlen_avx2", "__memcmp_evex_movbe", "_IO_putc", "qsort_r"] {
            assert_eq!(contract(other), None, "{other}");
        }
        assert!(is_vector_function("__strlen_avx2") && is_vector_function("__strcpy_evex"));
        assert!(!is_vector_function("strlen_of_mine") && !is_vector_function("__memmove_avx2"));
    }

    #[test]
    fn functions_are_known_where_they_are_linked_in() {
        assert!(is_own_function("_dl_allocate_tls_init") && is_own_function("_Unwind_Find_FDE"));
        for own in ["_IO_puts", "puts", "__vfprintf_internal", "fflush", "__stdio_write"] {
            assert!(is_own_function(own), "{own}");
        }
        for other in ["transfer", "dl_open", "puts_twice", "my_printf", "memcpy"] {
            assert!(!is_own_function(other), "{other}");
        }
    }
}
