# SPDX-License-Identifier: Apache-2.0
# Debian packages, one per install component: `cpack --config BUILD/CPackConfig.cmake -B FOLDER`. They are for /usr, whatever
# prefix the build folder has. Dependencies on libraries are dpkg-shlibdeps' findings.
if(MLNET_AGGREGATOR_ONLY)
  set(MLNET_PACKAGES mlnet-aggregator)
else()
  set(MLNET_PACKAGES mlnetd mlnet-tools libmlnet libmlnet-dev)
  if(MLNET_PEERS)
    list(APPEND MLNET_PACKAGES mlnet-peers)
  endif()
  if(MLNET_TORCH)
    list(APPEND MLNET_PACKAGES python3-mlnet)
  endif()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR mlnet)
set(CPACK_PACKAGE_CONTACT "mlnet developers <root@localhost>")
set(CPACK_SET_DESTDIR ON)  # so that install scripts see the prefix /usr itself
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL ${MLNET_PACKAGES})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_BINARY_DIR}/userspace/worker")
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
if(CMAKE_CROSSCOMPILING)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)  # dpkg-shlibdeps knows this machine's packages; tools/build-arm64 looks into the sysroot
endif()

set(debian "${CMAKE_SOURCE_DIR}/tools/debian")
foreach(package IN LISTS MLNET_PACKAGES)
  string(TOUPPER ${package} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  # Only where the component is asked for: an installation without packages has no use for it.
  install(FILES "${debian}/copyright" DESTINATION "share/doc/${package}" COMPONENT ${package} EXCLUDE_FROM_ALL)
endforeach()
set(this_libmlnet "libmlnet (= ${PROJECT_VERSION})")

set(CPACK_COMPONENT_MLNETD_DESCRIPTION "daemon that sums gradients in this host's kernel
One per host: it owns the XDP programs of the NICs and the memory that
training processes get their sums from.")
set(CPACK_DEBIAN_MLNETD_PACKAGE_DEPENDS "systemd | systemd-standalone-sysusers")
set(CPACK_DEBIAN_MLNETD_PACKAGE_RECOMMENDS "mlnet-tools (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_MLNETD_PACKAGE_CONTROL_EXTRA
    "${debian}/conffiles;${debian}/postinst;${debian}/prerm;${debian}/postrm")

set(CPACK_COMPONENT_MLNET-AGGREGATOR_DESCRIPTION "daemon that sums gradients in this host's kernel, for hosts without ranks
mlnetd and mlnetctl alone: for SmartNICs and other hosts that sum what
workers send them, and train nothing themselves.")
set(CPACK_DEBIAN_MLNET-AGGREGATOR_PACKAGE_DEPENDS "${CPACK_DEBIAN_MLNETD_PACKAGE_DEPENDS}")
set(CPACK_DEBIAN_MLNET-AGGREGATOR_PACKAGE_CONFLICTS "mlnetd, mlnet-tools")
set(CPACK_DEBIAN_MLNET-AGGREGATOR_PACKAGE_REPLACES "mlnetd, mlnet-tools")
set(CPACK_DEBIAN_MLNET-AGGREGATOR_PACKAGE_CONTROL_EXTRA "${CPACK_DEBIAN_MLNETD_PACKAGE_CONTROL_EXTRA}")

set(CPACK_COMPONENT_MLNET-TOOLS_DESCRIPTION "mlnetctl, and clusters of network namespaces to try mlnet in
mlnetctl asks and steers the daemons; mlnet-lab builds a cluster on one
machine and measures it.")
set(CPACK_DEBIAN_MLNET-TOOLS_PACKAGE_DEPENDS "${this_libmlnet}, iproute2, ethtool")
set(CPACK_DEBIAN_MLNET-TOOLS_PACKAGE_SUGGESTS "mlnetd, mlnet-peers")

set(CPACK_COMPONENT_LIBMLNET_DESCRIPTION "collectives whose sums are made in the kernel
The library that training processes load; it needs no privileges, and an
mlnetd on the same host.")
set(CPACK_DEBIAN_LIBMLNET_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBMLNET_PACKAGE_RECOMMENDS mlnetd)

set(CPACK_COMPONENT_LIBMLNET-DEV_DESCRIPTION "collectives whose sums are made in the kernel: headers
C++20 headers and the pkg-config file of libmlnet.")
set(CPACK_DEBIAN_LIBMLNET-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBMLNET-DEV_PACKAGE_DEPENDS "${this_libmlnet}, libexpected-dev")

set(CPACK_COMPONENT_MLNET-PEERS_DESCRIPTION "Gloo and Open MPI for mlnet-lab perf --compare
Rank programs of the libraries that mlnet is measured beside.")
set(CPACK_DEBIAN_MLNET-PEERS_PACKAGE_DEPENDS "mlnet-tools (= ${PROJECT_VERSION}), openmpi-bin")

set(CPACK_COMPONENT_PYTHON3-MLNET_DESCRIPTION "PyTorch backend whose sums are made in the kernel
torch.distributed with the backend mlnet, for Debian's PyTorch.")
set(CPACK_DEBIAN_PYTHON3-MLNET_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON3-MLNET_PACKAGE_DEPENDS
    "${this_libmlnet}, python3 (>= 3.11), python3 (<< 3.12), python3-torch (>= 1.13), python3-torch (<< 1.14~)")
include(CPack)
