#include "timeline/summary.h"

namespace rueda::timeline {
std::string as_html(const Summary& summary) { return "<pre>" + as_text(summary) + "</pre>"; }
}  // namespace rueda::timeline
