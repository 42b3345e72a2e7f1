// SPDX-License-Identifier: Apache-2.0
#include "daemon/nic_tag.h"

namespace mlnet::daemon {

using control::Json;
using datapath::ClsactPlace;

Result<std::unique_ptr<NicTag>> NicTag::Attach(const datapath::Tagger& tagger, NicState& state, const std::string& iface,
                                               const std::string& how) {
  auto attachment = datapath::TagAttachment::Attach(tagger, iface, how);
  if (!attachment) return tl::make_unexpected(attachment.error());
  std::unique_ptr<NicTag> tag(new NicTag(state, iface, std::move(*attachment)));
  const ClsactPlace* place = tag->attachment_.clsact();
  if (place == nullptr) return tag;
  auto noted = state.Remember(kClsactSection, iface, {{"ifindex", place->ifindex}, {"is_ours", place->is_ours}});
  if (!noted) return tl::make_unexpected(noted.error());
  return tag;
}

NicTag::~NicTag() {
  { const datapath::TagAttachment gone = std::move(attachment_); }
  state_.Forget(kClsactSection, iface_);
}

void UndoTags(NicState& state) {
  state.UndoAll(kClsactSection, [](const std::string& iface, const Json& entry) {
    datapath::RemoveFromClsact(ClsactPlace{iface, entry.value("ifindex", 0), entry.value("is_ours", false)});
  });
}

}  // namespace mlnet::daemon
