#include "trireme/tune/trial_order.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme {

std::string TrialOrder::ToJson() const {
  return nlohmann::json{{"config", config},
                        {"seeds", seeds},
                        {"rungs", rungs},
                        {"objective", NameOf(aim.objective)},
                        {"target", aim.target},
                        {"steps", aim.steps},
                        {"until", until},
                        {"from", from},
                        {"to", to},
                        {"cap", cap}}
      .dump();
}

TrialOrder TrialOrder::Parse(const std::string& json) {
  try {
    const nlohmann::json order = nlohmann::json::parse(json);
    return {order.at("config"),
            order.at("seeds"),
            order.at("rungs"),
            {ParseObjective(order.at("objective").get<std::string>()), order.at("target"), order.at("steps")},
            order.at("until"),
            order.at("from"),
            order.at("to"),
            order.at("cap")};
  } catch (const nlohmann::json::exception& error) {
    Fail("the order of a trial cannot be read: {}", error.what());
  }
}

}  // namespace trireme
