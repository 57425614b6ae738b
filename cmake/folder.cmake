# A folder is a phase: one static library, whose sources are all .cpp files in it and in its folders.
# In src, weft_folder(ir DEPENDS base) makes the target weft_ir from src/ir/*.cpp and src/ir/*/*.cpp; its headers are
# included as "ir/...". COLD: the folder runs at compile time only (weft_cold_options).
function(weft_folder name)
  cmake_parse_arguments(ARG "COLD" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp
       ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*/*.cpp)
  if(NOT sources)  # a phase whose code is all in headers, or not there yet
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty_${name}.cpp)
    file(TOUCH ${sources})
  endif()
  add_library(weft_${name} STATIC ${sources})
  target_include_directories(weft_${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  set_target_properties(weft_${name} PROPERTIES LINKER_LANGUAGE CXX)
  if(ARG_COLD)
    target_compile_options(weft_${name} PRIVATE ${weft_cold_options})
  endif()
  weft_join_sources(weft_${name} 12)
  if(TARGET weft_base AND NOT name STREQUAL "base" AND NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_precompile_headers(weft_${name} REUSE_FROM weft_base)
  endif()
  foreach(dependency IN LISTS ARG_DEPENDS)
    target_link_libraries(weft_${name} PUBLIC weft_${dependency})
  endforeach()
endfunction()
