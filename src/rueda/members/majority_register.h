// The register of an elastic job's views where no launcher serves one: the majority of the last view's
// members (membership/agreement.h), whose votes lie in their stores.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "rueda/members/member_peers.h"
#include "rueda/membership/register.h"

namespace rueda::members {

// One thread.
class MajorityRegister final : public membership::Register {
 public:
  // last: the view whose members vote. ended: members of which that is certain. silent: members that do not
  // answer. round: the last that this process has used, of all views; it goes on counting.
  MajorityRegister(MemberPeers& peers, membership::Uid me, membership::View last,
                   std::set<membership::Uid> ended, std::set<membership::Uid> silent, int64_t& round)
      : peers_(peers),
        me_(std::move(me)),
        last_(std::move(last)),
        ended_(std::move(ended)),
        silent_(std::move(silent)),
        round_(round) {}

  // Fails with a sentence if too few members answer.
  Result<membership::View> propose(const membership::View& next) override;

 private:
  Result<membership::View> decided_elsewhere(int64_t number);

  MemberPeers& peers_;
  membership::Uid me_;
  membership::View last_;
  std::set<membership::Uid> ended_, silent_;
  int64_t& round_;
};

}  // namespace rueda::members
