# LLVM and fmt: WEFT_LLVM and WEFT_FMT are what to link. Development links the system's shared libraries, which is quick;
# a wheel (WEFT_STATIC_LLVM) has LLVM, zlib and zstd in libweft_engine.so, and runs where none of them is installed.
set(ZLIB_USE_STATIC_LIBS ON)  # nothing but LLVM's archives needs it
find_package(LLVM 19.1 REQUIRED CONFIG HINTS /usr/lib/llvm-19)

# Sets `result` to what LLVM's archives lack here, or to nothing. The archives are those of llvm-19-dev.
function(weft_find_missing_archives result)
  set(missing "")
  foreach(library LLVMX86CodeGen LLVMOrcJIT LLVMSupport ZLIB::ZLIB zstd::libzstd_static)
    set(file "")
    if(TARGET ${library})
      get_target_property(file ${library} LOCATION)
    endif()
    if(NOT (file MATCHES "\\.a$" AND EXISTS "${file}"))
      list(APPEND missing ${library})
    endif()
  endforeach()
  set(${result} "${missing}" PARENT_SCOPE)
endfunction()

set(WEFT_LLVM LLVM)
set(WEFT_FMT fmt::fmt)
set(WEFT_LINKS_STATICALLY OFF)
if(WEFT_STATIC_LLVM)
  weft_find_missing_archives(missing)
  if(NOT missing)
    set(WEFT_LINKS_STATICALLY ON)
  elseif(WEFT_STATIC_LLVM STREQUAL "AUTO")
    message(STATUS "weft will need LLVM's shared library: there are no archives of ${missing}")
  else()
    message(FATAL_ERROR "WEFT_STATIC_LLVM=${WEFT_STATIC_LLVM}: there are no archives of ${missing}. "
                        "Debian has them in llvm-19-dev, zlib1g-dev and libzstd-dev.")
  endif()
endif()

if(WEFT_LINKS_STATICALLY)
  # The code generators beside x86's are for packages (src/packages/target.cpp).
  llvm_map_components_to_libnames(WEFT_LLVM orcjit passes bitwriter object x86codegen x86asmparser aarch64codegen
                                  riscvcodegen armcodegen webassemblycodegen)
  set(WEFT_FMT fmt::fmt-header-only)
  # Debian's LLVM names the shared zstd here, and Z3, which only a static analyser uses.
  set_target_properties(LLVMSupport PROPERTIES
    INTERFACE_LINK_LIBRARIES "rt;dl;m;ZLIB::ZLIB;zstd::libzstd_static;LLVMDemangle")
  add_link_options(-Wl,--gc-sections -Wl,--as-needed)
  # The notices of what a wheel has in it go with it.
  foreach(package llvm-19-dev libfmt-dev zlib1g-dev libzstd-dev)
    install(FILES /usr/share/doc/${package}/copyright DESTINATION weft/licenses RENAME ${package}.txt OPTIONAL)
  endforeach()
endif()
