# SPDX-License-Identifier: Apache-2.0
# Runs while installing: the unit and the configuration, for the prefix of this installation, which need not be that of the
# build (--prefix, packages). /usr's configuration belongs into /etc, as main.cc knows.
set(MLNET_CONFIG_FOLDER "${CMAKE_INSTALL_PREFIX}/etc/mlnet")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(MLNET_CONFIG_FOLDER "/etc/mlnet")
endif()
configure_file("${MLNET_DAEMON_SOURCE}/mlnetd.service.in" "${MLNET_DAEMON_BINARY}/mlnetd.service" @ONLY)
file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/systemd/system" TYPE FILE FILES "${MLNET_DAEMON_BINARY}/mlnetd.service")
file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/lib/sysusers.d" TYPE FILE FILES "${MLNET_DAEMON_SOURCE}/mlnetd.sysusers" RENAME mlnetd.conf)
file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/share/mlnet" TYPE FILE FILES "${MLNET_DAEMON_SOURCE}/mlnetd-shared.conf")
file(INSTALL DESTINATION "${MLNET_CONFIG_FOLDER}" TYPE FILE FILES "${MLNET_DAEMON_SOURCE}/mlnetd.toml")
