# The library, and what `cmake --install` puts where:
#
#   bin/trireme                              the program, which needs nothing of the rest but, for servers, MPI and MP4, the plug-ins
#   lib/libtrireme.so.<version>              all folders of src/ but cli, choose, plan and tune
#   lib/trireme/libtrireme_{grpc,mpi_*,ffmpeg,torch}.so plug-ins (base/plugin.h), as far as they were built
#   lib/cmake/Trireme, lib/pkgconfig         find_package(Trireme), pkg-config
#   include/trireme/<folder>/<file>.h
#   include/trireme/env_plugin.h             all that a plug-in with environments needs
# Packages are made of what was built, which need not be everything.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(folders base picture metrics optim nn codec comm split rpc env rollout replay store experience server algo train)
list(TRANSFORM folders REPLACE "(.+)" "$<TARGET_OBJECTS:trireme_\\1>" OUTPUT_VARIABLE objects)
add_library(trireme_library SHARED ${objects})
set_target_properties(trireme_library PROPERTIES OUTPUT_NAME trireme EXPORT_NAME trireme LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_compile_features(trireme_library INTERFACE cxx_std_20)
target_include_directories(trireme_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# Environments are compiled where they are used: as ours, so that every instruction set rounds alike.
set(TRIREME_USER_OPTIONS -ffp-contract=off -Wno-psabi)
target_compile_options(trireme_library INTERFACE ${TRIREME_USER_OPTIONS})
target_link_libraries(trireme_library PUBLIC fmt::fmt
  PRIVATE OpenSSL::Crypto ZLIB::ZLIB tomlplusplus::tomlplusplus Threads::Threads ${CMAKE_DL_LIBS} ${TRIREME_XSMM} m)
# What is linked in from static libraries is not for others.
target_link_options(trireme_library PRIVATE LINKER:--exclude-libs,ALL LINKER:--no-undefined)

install(TARGETS trireme RUNTIME COMPONENT program)
install(TARGETS trireme_library EXPORT Trireme
  LIBRARY COMPONENT library NAMELINK_COMPONENT development)
foreach(plugin grpc ffmpeg ${TRIREME_MPIS})
  if(TARGET trireme_${plugin})
    install(TARGETS trireme_${plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/trireme COMPONENT plugins)
  endif()
endforeach()

# Not with the others: what it needs is large, and no package has it.
if(TARGET trireme_torch)
  install(TARGETS trireme_torch LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/trireme COMPONENT torch OPTIONAL)
endif()

# The folders on their own, for the Python module (python/CMakeLists.txt), which is linked with what was built here.
list(TRANSFORM folders PREPEND trireme_ OUTPUT_VARIABLE archives)
export(TARGETS ${archives} FILE ${PROJECT_BINARY_DIR}/TriremeFolders.cmake)

# Headers of plug-ins, of tests and of the program stay at home, but for the kit that environments of others are tested with.
foreach(folder ${folders})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trireme COMPONENT development
    FILES_MATCHING PATTERN *.h
    REGEX "/(grpc|mpi|ffmpeg|nn/torch)$" EXCLUDE REGEX "/(test_[^/]*|[^/]*_conformance|(comm|codec)/conformance|nn/plain_tower|nn/copying_executor|metrics/figures|[^/]*test_util)\\.h$" EXCLUDE)
endforeach()

install(FILES ${PROJECT_SOURCE_DIR}/src/env_plugin.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trireme COMPONENT development)

include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)
install(EXPORT Trireme NAMESPACE Trireme:: FILE TriremeTargets.cmake DESTINATION ${package} COMPONENT development)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/TriremeConfig.cmake ${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake
  DESTINATION ${package} COMPONENT development)
list(JOIN TRIREME_USER_OPTIONS " " TRIREME_PC_OPTIONS)
file(RELATIVE_PATH TRIREME_PC_TO_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(${PROJECT_SOURCE_DIR}/cmake/trireme.pc.in ${PROJECT_BINARY_DIR}/trireme.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/trireme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
