// LEEWAY_EMBED(name, path) copies a file into the program: from `name` up to
// `name_end`, followed by a zero. CMake names the file and builds the source again
// when it changes (OBJECT_DEPENDS).
#ifndef LEEWAY_COMMON_EMBED_H_
#define LEEWAY_COMMON_EMBED_H_

#define LEEWAY_EMBED(name, path)                                                                   \
  asm(".section .rodata\n" #name ":\n.incbin \"" path "\"\n" #name "_end:\n.byte 0\n.previous\n"); \
  extern "C" const char name[];                                                                    \
  extern "C" const char name##_end[];

#endif  // LEEWAY_COMMON_EMBED_H_
