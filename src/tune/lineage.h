// Who went on from whom in a population, as part of the page of a study.
#pragma once

#include <string>

#include "trireme/tune/space.h"
#include "trireme/tune/study_page.h"

namespace trireme {

// Members as rows and stretches as columns, with the line of the best one, and the settings along it. Empty where the study is
// of another method.
std::string LineageHtml(const StudyPage& page, const Space& space);

}  // namespace trireme
