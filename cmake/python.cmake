# The build folder's python/ is the package as installed: PYTHONPATH=build/python runs it without an installation.
# weft_link_package(weft/formats FROM folder) makes each file of the folder importable there.
function(weft_link_package package)
  cmake_parse_arguments(ARG "" "FROM" "" ${ARGN})
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${ARG_FROM}
       ${ARG_FROM}/*.py ${ARG_FROM}/*.pyi ${ARG_FROM}/py.typed ${ARG_FROM}/weft_model.h*)
  foreach(file IN LISTS files)
    get_filename_component(folder ${CMAKE_BINARY_DIR}/python/${package}/${file} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    file(CREATE_LINK ${ARG_FROM}/${file} ${CMAKE_BINARY_DIR}/python/${package}/${file} SYMBOLIC)
  endforeach()
endfunction()

# What lies beside the packages, for Python to read at its start: processes under `weft run`.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/python)
foreach(file weft-run.pth _weft_run.py)
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/python/start/${file} ${CMAKE_BINARY_DIR}/python/${file} SYMBOLIC)
endforeach()

# A module that was moved or deleted must not stay importable: all links are made anew.
file(GLOB_RECURSE weft_links ${CMAKE_BINARY_DIR}/python/weft/*.py)
foreach(link IN LISTS weft_links)
  file(REMOVE ${link})
endforeach()
