// libfuse's low-level interface, at the API version the daemon is written for. Include this, never libfuse directly.
#pragma once

#define FUSE_USE_VERSION 312

#include <fuse3/fuse_lowlevel.h>
