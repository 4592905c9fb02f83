#include "rueda/backend/nccl/call_stages.h"

#include "rueda/base/check.h"

namespace rueda::nccl {
namespace {

Stage next_part(const Facts& facts) { return facts.has_room ? Stage::kReducing : Stage::kWaiting; }

}  // namespace

Stage first_stage(bool may_be_cancelled) { return may_be_cancelled ? Stage::kSyncing : Stage::kStarting; }

Stage stage_after(Stage stage, const Facts& facts) {
  switch (stage) {
    case Stage::kSyncing:
      return Stage::kStarting;
    case Stage::kStarting:
      if (facts.is_refused) return Stage::kHandedOver;
      return facts.is_connected ? Stage::kPreparing : Stage::kSettingUp;
    case Stage::kSettingUp:
      return facts.is_refused ? Stage::kHandedOver : Stage::kConnecting;
    case Stage::kConnecting:
    case Stage::kProbing:
      return facts.has_probe ? Stage::kProbing : Stage::kPreparing;
    case Stage::kPreparing:
      return facts.lacks_memory ? Stage::kAgreeing : next_part(facts);
    case Stage::kAgreeing:
      return facts.lacks_memory ? Stage::kHandedOver : next_part(facts);
    case Stage::kWaiting:
      return next_part(facts);
    case Stage::kReducing:
      if (facts.is_hierarchical) return facts.has_share ? Stage::kBetween : Stage::kGathering;
      return facts.has_exchange ? Stage::kExchanging : Stage::kStoring;
    case Stage::kExchanging:
      return facts.has_exchange ? Stage::kExchanging : Stage::kStoring;
    case Stage::kBetween:
      return Stage::kGathering;
    case Stage::kGathering:
      return Stage::kStoring;
    case Stage::kStoring:
      return facts.has_part ? next_part(facts) : Stage::kDone;
    case Stage::kLeaving:
      return Stage::kDone;
    case Stage::kIdle:
    case Stage::kHandedOver:
    case Stage::kDone:
      break;
  }
  RUEDA_CHECK(false, "this stage ends a call");
  return Stage::kIdle;
}

}  // namespace rueda::nccl
