// Both mountain cars, which differ in where the flag is.
#pragma once

#include "trireme/picture/picture.h"

namespace trireme {

void DrawMountainCar(double position, double goal, Picture& out);

}  // namespace trireme
