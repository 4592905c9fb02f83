// Warnings about connections that a listener refused. Their number is limited, so that strangers cannot
// fill the log.
#pragma once

#include <string>
#include <string_view>

#include "rueda/base/log.h"
#include "rueda/base/status.h"

namespace rueda {

class RefusalLog {
 public:
  void warn(std::string_view who_refused, const Status& why) {
    if (++count_ > kMost) return;
    RUEDA_LOG(kWarning, std::string(who_refused) + " refused a connection: " + why.why +
                            (count_ == kMost ? " Further refusals are not logged." : ""));
  }

 private:
  static constexpr int kMost = 10;
  int count_ = 0;
};

}  // namespace rueda
