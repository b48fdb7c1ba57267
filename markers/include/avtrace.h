/*
 * avtrace.h - markers for avtrace, for C and C++.
 *
 * A marker names what avtrace cannot know by itself: the code that is meant to be atomic, and the
 * variables that are worth watching.
 *
 *     #include "avtrace.h"
 *
 *     void transfer(long amount)
 *     {
 *         AVTRACE_REGION("transfer");        // until the end of this block, however it is left
 *         ...
 *     }
 *
 *     AVTRACE_BEGIN("refill");               // or by hand: a begin and an end with the same name
 *     ...
 *     AVTRACE_END("refill");
 *
 *     AVTRACE_SHARED(account.balance);       // a variable that threads share
 *     AVTRACE_SHARED_NAMED(table[i % n], "slot");
 *
 * This header is all there is: no library, no dependency, nothing to call at run time.
 *
 * What a marker costs
 *     A `nop` of one byte and one of ten on x86-64 (one instruction on AArch64) in the code, and a note in
 *     a section that is not loaded into memory. AVTRACE_SHARED may take one more instruction, when an address has
 *     to be computed. Every marker is also a compiler barrier: the compiler moves no memory access
 *     across it, so that what is written inside a region stays inside. AVTRACE_SHARED makes a local
 *     variable live in memory instead of a register.
 *
 * Names
 *     A name is a string literal. It may hold anything but the double quote, the backslash, '%', '{',
 *     '|' and '}', which the compiler or the assembler would take for their own. Names of letters,
 *     digits, '_', '-' and '.' are the easiest to hand to other tools. AVTRACE_SHARED names the variable
 *     by the text of its argument; where that text holds one of those characters, use
 *     AVTRACE_SHARED_NAMED.
 *
 * Reading markers with other tools
 *     The notes are those of SystemTap ("stapsdt", version 3), which many tools know:
 *
 *         readelf --notes ./prog
 *         bpftrace -e 'usdt:./prog:avtrace_begin:transfer { printf("%d begins\n", tid); }'
 *
 *     provider            probe name       argument
 *     avtrace_begin       the region       -
 *     avtrace_end         the region       -
 *     avtrace_end_scope   innermost        -                 closes the innermost open region
 *     avtrace_shared      the variable     SIZE@OPERAND      its size in bytes and where it is: for avtrace
 *                                                            the operand's address matters; other tools
 *                                                            see the variable's value
 *
 *     One marker can have several notes: the compiler copies the code around it when it inlines, unrolls
 *     or gives an exception a way out of its own. `strip` leaves the notes in place. An operand such as
 *     `balance(%rip)` names a symbol, which `strip` may remove.
 *
 * Where it works
 *     GCC and Clang, ELF, x86-64 and AArch64, C99 or later and C++11 or later, and the AT&T syntax of
 *     assembly that is these compilers' default. Everywhere else, and with AVTRACE_DISABLE defined, the
 *     markers expand to nothing. A region in a `constexpr` function is an error before C++20.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef AVTRACE_H
#define AVTRACE_H

#if !defined(AVTRACE_DISABLE) && defined(__GNUC__) && defined(__ELF__) && defined(__LP64__) \
    && (defined(__x86_64__) || defined(__aarch64__))
#define AVTRACE_ENABLED 1
#else
#define AVTRACE_ENABLED 0
#endif

#if AVTRACE_ENABLED

/*
 * The compiler guesses the size of an asm statement from its lines, and would think twice about inlining
 * a function with a marker. `asm inline` says that it is small.
 */
#if !defined(__clang__) && __GNUC__ >= 9
#define AVTRACE_ASM_ __asm__ __volatile__ __inline__
#else
#define AVTRACE_ASM_ __asm__ __volatile__
#endif

/*
 * One note on one nop. The description of a note holds the address of the nop, that of `_.stapsdt.base`
 * (a reader that finds this section elsewhere knows that the file was relocated after linking), that of
 * a semaphore (none), and three strings. The flag "?" puts the note in the section group of the code
 * that it is about, if that has one: inline functions and templates are thrown away together with their
 * notes. The relocation at the end changes nothing in the code; by it a linker that collects unused
 * sections knows that `_.stapsdt.base` is in use. Such a linker may keep the note of a function that it
 * dropped, with an address outside the code.
 */
#ifdef __x86_64__
#define AVTRACE_NO_RELOCATION_ "R_X86_64_NONE"
/*
 * Room behind the nop, for a probe that is a jump. This nop is the one that later kernels replace by a call which leaves
 * the red zone alone; of five bytes it would not, and a probe of Linux 6.18 there overwrites what a function keeps
 * below its stack pointer.
 */
#define AVTRACE_ROOM_ ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\n"
#else
#define AVTRACE_NO_RELOCATION_ "R_AARCH64_NONE"
#define AVTRACE_ROOM_ ""
#endif

#define AVTRACE_NOTE_(provider, name, arguments)                          \
    "990: nop\n" AVTRACE_ROOM_                                            \
    ".pushsection .note.stapsdt,\"?\",\"note\"\n"                         \
    ".balign 4\n"                                                         \
    ".4byte 992f-991f, 994f-993f, 3\n"                                    \
    "991: .asciz \"stapsdt\"\n"                                           \
    "992: .balign 4\n"                                                    \
    "993: .8byte 990b\n"                                                  \
    ".8byte _.stapsdt.base\n"                                             \
    ".8byte 0\n"                                                          \
    ".asciz \"" provider "\"\n"                                           \
    ".asciz \"" name "\"\n"                                               \
    ".asciz \"" arguments "\"\n"                                          \
    "994: .balign 4\n"                                                    \
    ".popsection\n"                                                       \
    ".ifndef _.stapsdt.base\n"                                            \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
    ".weak _.stapsdt.base\n"                                              \
    ".hidden _.stapsdt.base\n"                                            \
    "_.stapsdt.base: .space 1\n"                                          \
    ".size _.stapsdt.base, 1\n"                                           \
    ".popsection\n"                                                       \
    ".endif\n"                                                            \
    ".reloc 990b, " AVTRACE_NO_RELOCATION_ ", _.stapsdt.base\n"

#define AVTRACE_MARK_(provider, name) AVTRACE_ASM_(AVTRACE_NOTE_(provider, name, "") : : : "memory")

/* The variable as an operand in memory, whatever its type; nothing is read. */
#ifdef __cplusplus
#define AVTRACE_BYTES_(variable) (reinterpret_cast<const volatile char(&)[sizeof(variable)]>(variable))
#else
#define AVTRACE_BYTES_(variable) (*(const volatile char(*)[sizeof(variable)])(__UINTPTR_TYPE__)&(variable))
#endif

#define AVTRACE_GLUE2_(a, b) a##b
#define AVTRACE_GLUE_(a, b) AVTRACE_GLUE2_(a, b)

/* Opens the region `name`; the same thread closes it with AVTRACE_END(name). */
#define AVTRACE_BEGIN(name)                   \
    do {                                      \
        AVTRACE_MARK_("avtrace_begin", name); \
    } while (0)

/* Closes the region `name`. */
#define AVTRACE_END(name)                   \
    do {                                    \
        AVTRACE_MARK_("avtrace_end", name); \
    } while (0)

/* Names a variable worth watching by a label. The variable is an lvalue: no bit-field, no register. */
#define AVTRACE_SHARED_NAMED(variable, label)                                                    \
    do {                                                                                         \
        AVTRACE_ASM_(AVTRACE_NOTE_("avtrace_shared", label, "%c[avtrace_size]@%[avtrace_place]") \
                     :                                                                           \
                     : [avtrace_size] "n"(sizeof(variable)),                                     \
                       [avtrace_place] "m"(AVTRACE_BYTES_(variable))                             \
                     : "memory");                                                                \
    } while (0)

/* Names a variable worth watching by the text of the argument. */
#define AVTRACE_SHARED(variable) AVTRACE_SHARED_NAMED(variable, #variable)

/* Opens the region `name` and closes it where the enclosing block is left. */
#ifdef __cplusplus
#define AVTRACE_REGION(name)                                                                         \
    struct AVTRACE_GLUE_(avtrace_region_, __LINE__) {                                                \
        __attribute__((__always_inline__)) AVTRACE_GLUE_(avtrace_region_, __LINE__)()                \
        {                                                                                            \
            AVTRACE_MARK_("avtrace_begin", name);                                                    \
        }                                                                                            \
        AVTRACE_GLUE_(avtrace_region_, __LINE__)                                                     \
        (const AVTRACE_GLUE_(avtrace_region_, __LINE__) &) = delete;                                 \
        AVTRACE_GLUE_(avtrace_region_, __LINE__) &operator=(const AVTRACE_GLUE_(avtrace_region_,     \
                                                                                __LINE__) &) = delete; \
        __attribute__((__always_inline__)) ~AVTRACE_GLUE_(avtrace_region_, __LINE__)()               \
        {                                                                                            \
            AVTRACE_MARK_("avtrace_end", name);                                                      \
        }                                                                                            \
    } AVTRACE_GLUE_(avtrace_guard_, __LINE__)
#else
/* The function that ends a block cannot know the name: its note closes the innermost region. */
static __inline__ __attribute__((__always_inline__, __unused__)) void avtrace_end_scope_(const char *guard)
{
    (void)guard;
    AVTRACE_MARK_("avtrace_end_scope", "innermost");
}

#define AVTRACE_REGION(name)                                                          \
    __attribute__((__cleanup__(avtrace_end_scope_), __unused__)) const char           \
    AVTRACE_GLUE_(avtrace_guard_, __LINE__) = __extension__({                         \
        AVTRACE_MARK_("avtrace_begin", name);                                         \
        (char)0;                                                                      \
    })
#endif

#else /* no markers here */

#define AVTRACE_BEGIN(name) ((void)0)
#define AVTRACE_END(name) ((void)0)
#define AVTRACE_REGION(name) ((void)0)
#define AVTRACE_SHARED(variable) ((void)sizeof(variable))
#define AVTRACE_SHARED_NAMED(variable, label) ((void)sizeof(variable))

#endif

#endif
