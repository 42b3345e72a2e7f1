// SPDX-License-Identifier: Apache-2.0
#include "daemon/nic_tag.h"

namespace mlnet::daemon {

using control::Json;
using datapath::ClsactPlace;

Result<std::unique_ptr<NicTag>> NicTag::Attach(const datapath::Tagger& tagger, NicState& state, const std::string& iface,
                                               const std::string& how, const std::string& pin) {
  auto attachment = datapath::TagAttachment::Attach(tagger, iface, how, pin);
  if (!attachment) return tl::make_unexpected(attachment.error());
  std::unique_ptr<NicTag> tag(new NicTag(state, iface, std::move(*attachment)));
  ClsactPlace* place = tag->attachment_.clsact();
  if (place == nullptr) return tag;
  // An earlier daemon may have made the qdisc that is there.
  const Json before = state.Find(kClsactSection, iface);
  if (!before.is_null() && before.value("ifindex", 0) == place->ifindex) place->is_ours |= before.value("is_ours", false);
  auto noted = state.Remember(kClsactSection, iface, {{"ifindex", place->ifindex}, {"is_ours", place->is_ours}});
  if (!noted) return tl::make_unexpected(noted.error());
  return tag;
}

NicTag::~NicTag() {
  { const datapath::TagAttachment gone = std::move(attachment_); }
  state_.Forget(kClsactSection, iface_);
}

void UndoTags(NicState& state, const std::set<std::string>& kept) {
  state.UndoAll(kClsactSection, kept, [](const std::string& iface, const Json& entry) {
    datapath::RemoveFromClsact(ClsactPlace{iface, entry.value("ifindex", 0), entry.value("is_ours", false)});
  });
}

}  // namespace mlnet::daemon
