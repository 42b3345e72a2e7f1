// SPDX-License-Identifier: Apache-2.0
#include "daemon/store.h"

#include "daemon/etcd_store.h"
#include "daemon/sqlite_store.h"

namespace mlnet::daemon {

Result<std::unique_ptr<Store>> OpenStore(const control::Config& config) {
  return config.etcd.endpoints.empty() ? SqliteStore::Open(config.store) : EtcdStore::Open(config.etcd);
}

}  // namespace mlnet::daemon
