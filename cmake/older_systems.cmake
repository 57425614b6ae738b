# Makes an extension module load on systems older than the one that it was linked on, down to glibc 2.28 and GCC 8's
# libstdc++, which PyTorch's own wheels ask for. Without it a symbol is bound to its newest version on this machine.
if(WEFT_OLDER_SYSTEMS)
  if(NOT (CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64"))
    message(FATAL_ERROR "WEFT_OLDER_SYSTEMS is for g++ on x86-64")
  endif()
  enable_language(ASM)
endif()

# Functions whose newest version differs from the first in name only, or in errno for arguments out of range (libm's).
# The old version is in every glibc; objects are compiled already, so that the linker wraps what they call.
set(weft_redirected
    exp@GLIBC_2.2.5 hypot@GLIBC_2.2.5 hypotf@GLIBC_2.2.5 log@GLIBC_2.2.5 log2@GLIBC_2.2.5 pow@GLIBC_2.2.5
    dlclose@GLIBC_2.2.5 dlerror@GLIBC_2.2.5 dlopen@GLIBC_2.2.5 dlsym@GLIBC_2.2.5
    pthread_getspecific@GLIBC_2.2.5 pthread_key_create@GLIBC_2.2.5 pthread_key_delete@GLIBC_2.2.5
    pthread_mutex_trylock@GLIBC_2.2.5 pthread_once@GLIBC_2.2.5 pthread_rwlock_rdlock@GLIBC_2.2.5
    pthread_rwlock_unlock@GLIBC_2.2.5 pthread_rwlock_wrlock@GLIBC_2.2.5 pthread_setspecific@GLIBC_2.2.5
    pthread_sigmask@GLIBC_2.2.5)
# Functions that an old glibc or libstdc++ lacks: cmake/older_systems.cpp has them.
set(weft_supplied arc4random fstat fstat64 fstatat lstat lstat64 mallinfo2 mknod stat stat64
    _ZNSt15__exception_ptr13exception_ptr9_M_addrefEv _ZNSt15__exception_ptr13exception_ptr10_M_releaseEv
    _ZSt28__throw_bad_array_new_lengthv)
# Members of this compiler's libstdc++ that came after GCC 8. What they need is older.
set(weft_members condition_variable.o floating_from_chars.o fs_dir.o fs_ops.o fs_path.o futex.o memory_resource.o)

# What target_link_libraries leaves to do for an extension module; nothing without WEFT_OLDER_SYSTEMS.
function(weft_support_older_systems target)
  if(NOT WEFT_OLDER_SYSTEMS)
    return()
  endif()
  set(trampolines "")
  foreach(entry IN LISTS weft_redirected)
    string(REGEX REPLACE "@.*" "" name ${entry})
    string(APPEND trampolines
      ".symver weft_old_${name}, ${entry}\n"
      ".section .text.__wrap_${name},\"ax\",@progbits\n"
      ".globl __wrap_${name}\n.hidden __wrap_${name}\n.type __wrap_${name}, @function\n"
      "__wrap_${name}: jmp *weft_old_${name}@GOTPCREL(%rip)\n")
    target_link_options(${target} PRIVATE -Wl,--wrap=${name})
  endforeach()
  foreach(name IN LISTS weft_supplied)
    target_link_options(${target} PRIVATE -Wl,--wrap=${name})
  endforeach()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/older_systems)
  file(CONFIGURE OUTPUT ${folder}/redirected.s CONTENT "${trampolines}.section .note.GNU-stack,\"\",@progbits\n" @ONLY)
  set(supplied ${PROJECT_SOURCE_DIR}/cmake/older_systems.cpp)
  target_sources(${target} PRIVATE ${folder}/redirected.s ${supplied})
  set_source_files_properties(${supplied} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS -ffunction-sections)

  # An archive, since the linker hides what comes from archives; the whole of it, since who calls it comes later.
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE libstdcxx
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND ${CMAKE_AR} x ${libstdcxx} ${weft_members} WORKING_DIRECTORY ${folder}
                  COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_AR} rcs newer.a ${weft_members} WORKING_DIRECTORY ${folder}
                  COMMAND_ERROR_IS_FATAL ANY)
  target_link_libraries(${target} PRIVATE "-Wl,--whole-archive,${folder}/newer.a,--no-whole-archive")
endfunction()
