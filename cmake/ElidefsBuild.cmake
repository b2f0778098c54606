# Compiler settings, dependencies and the two helpers that turn a folder into a target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

option(ELIDEFS_TESTS "Build the tests" ON)
set(ELIDEFS_SANITIZE "" CACHE STRING "Value of -fsanitize=, empty for none")

find_program(ELIDEFS_CCACHE ccache)
if(ELIDEFS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ELIDEFS_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(FUSE3 REQUIRED IMPORTED_TARGET fuse3>=3.12)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)

add_library(elidefs_flags INTERFACE)
target_compile_options(elidefs_flags INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Werror=thread-safety>
  $<$<CONFIG:RelWithDebInfo>:-O2 -g1>)
if(ELIDEFS_SANITIZE)
  add_compile_options(-fsanitize=${ELIDEFS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ELIDEFS_SANITIZE})
  add_compile_definitions(ELIDEFS_SANITIZED=1)
endif()

# All .cc files below `folder` become sources of `target`.
function(elidefs_sources target folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
  target_sources(${target} PRIVATE ${sources})
endfunction()

# A static library elidefs_<folder> that may use the layers named after it.
function(elidefs_layer folder)
  add_library(elidefs_${folder} STATIC)
  elidefs_sources(elidefs_${folder} ${folder})
  target_include_directories(elidefs_${folder} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/include)
  target_link_libraries(elidefs_${folder} PUBLIC Threads::Threads absl::status absl::statusor absl::strings
    absl::flat_hash_map absl::flat_hash_set absl::any_invocable absl::span absl::inlined_vector absl::cord absl::str_format
    PRIVATE elidefs_flags)
  foreach(layer ${ARGN})
    target_link_libraries(elidefs_${folder} PUBLIC elidefs_${layer})
  endforeach()
  if(folder STREQUAL "blockio")
    target_link_libraries(elidefs_${folder} PRIVATE PkgConfig::URING)
  endif()
endfunction()
