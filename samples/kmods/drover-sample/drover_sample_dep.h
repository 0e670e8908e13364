/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DROVER_SAMPLE_DEP_H
#define DROVER_SAMPLE_DEP_H

/* Returns a fixed number. What matters is that another module calls it. */
int drover_sample_dep_answer(void);

#endif
