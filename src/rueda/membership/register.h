// Where the views of a job are decided, one after the other.
#pragma once

#include "rueda/membership/view.h"

namespace rueda::membership {

class Register {
 public:
  virtual ~Register() = default;
  // Accepts the view if the last one has the number before it. Returns the last view then: the proposed one,
  // or that of a rival. After a failure it is unknown whether it was accepted; proposing it again is safe.
  virtual Result<View> propose(const View& next) = 0;
};

}  // namespace rueda::membership
