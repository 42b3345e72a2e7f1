// SPDX-License-Identifier: Apache-2.0
// The tc program that marks what this host's processes send of mlnet, and its place on one interface: a TCX link where the
// kernel has it (6.6), else a filter in clsact. Both stay when the daemon is killed; the next one takes them over, or away
// (daemon/nic_state.h).
#pragma once

#include <array>
#include <memory>
#include <string>

#include "datapath/pinned_link.h"
#include "datapath/program.h"
#include "mlnet/tag.h"

struct priority_tag;  // the skeleton

namespace mlnet::datapath {

using TagCounters = std::array<mlnet_tags, MLNET_CLASSES_MAX>;

class Tagger {
 public:
  /// Marks by the job table of `program`, which must live at least as long.
  /// Its counters are pinned below `dir`, and go on from where an earlier daemon's are.
  static Result<Tagger> Load(const Program& program, const std::string& dir);
  Tagger(Tagger&&) noexcept;
  Tagger& operator=(Tagger&&) noexcept;
  ~Tagger();

  int fd() const;
  int classifier_fd() const;  // of htb's classes
  /// Summed over the CPUs, of all interfaces.
  Result<TagCounters> Read() const;

 private:
  struct Destroy {
    void operator()(priority_tag* skeleton) const;
  };
  explicit Tagger(std::unique_ptr<priority_tag, Destroy> skeleton);
  std::unique_ptr<priority_tag, Destroy> skeleton_;
};

inline constexpr uint32_t kTagHandle = 0x6d6c;   // "ml"
inline constexpr uint32_t kTagPriority = 28;     // early: a filter that ends the row would hide packets from it

/// What a filter in clsact leaves behind when its daemon is killed.
struct ClsactPlace {
  std::string name;
  int ifindex = 0;
  bool is_ours = false;  // the qdisc was not there before
};

class TagAttachment {
 public:
  /// `how`: auto, tcx, clsact. `pin`: of a TCX link, so that it outlives a daemon that is killed; one that is there is taken over.
  static Result<TagAttachment> Attach(const Tagger& tagger, const std::string& name, const std::string& how, const std::string& pin);
  TagAttachment(TagAttachment&&) noexcept = default;
  TagAttachment& operator=(TagAttachment&& other) noexcept;
  ~TagAttachment();

  const char* via() const { return link_ ? "tcx" : "clsact"; }
  bool IsAlive() const;
  /// Null for a link, which a pin holds.
  ClsactPlace* clsact() const { return place_.get(); }

 private:
  TagAttachment() = default;
  static Result<TagAttachment> ViaLink(const Tagger& tagger, const std::string& name, int ifindex, const std::string& pin);
  static Result<TagAttachment> ViaClsact(const Tagger& tagger, const std::string& name, int ifindex);

  PinnedLink link_;
  std::unique_ptr<ClsactPlace> place_;
};

/// Takes our filter away, and the qdisc if it is ours and nobody else has come to use it.
void RemoveFromClsact(const ClsactPlace& place);

}  // namespace mlnet::datapath
