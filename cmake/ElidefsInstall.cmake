# The library as an embedder gets it: libelidefs.a (all layers below the daemon), include/elidefs, and a CMake package.
#   find_package(elidefs REQUIRED)
#   target_link_libraries(program PRIVATE elidefs::elidefs)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(elidefs_library STATIC
  $<TARGET_OBJECTS:elidefs_base> $<TARGET_OBJECTS:elidefs_blockio> $<TARGET_OBJECTS:elidefs_core>)
add_library(elidefs::elidefs ALIAS elidefs_library)
set_target_properties(elidefs_library PROPERTIES OUTPUT_NAME elidefs EXPORT_NAME elidefs LINKER_LANGUAGE CXX)
target_compile_features(elidefs_library PUBLIC cxx_std_20)
target_include_directories(elidefs_library PUBLIC
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(elidefs_library PUBLIC Threads::Threads ${ELIDEFS_ABSL} PRIVATE PkgConfig::URING)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/elidefs)
if(TARGET elidefs)
  install(TARGETS elidefs RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS elidefs_library EXPORT elidefsTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/elidefs DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT elidefsTargets NAMESPACE elidefs:: DESTINATION ${package_folder})
configure_package_config_file(cmake/elidefsConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/elidefsConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/elidefsConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/elidefsConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/elidefsConfigVersion.cmake
  DESTINATION ${package_folder})
