/* SPDX-License-Identifier: MIT */
#include "tier/policy.h"

const struct tier_policy_ops *const tier_policies[] = {
	&tier_lru, &tier_arc, &tier_s3fifo, &tier_literal, NULL,
};

const struct tier_policy_ops *tier_policy_find(const char *name)
{
	for (size_t i = 0; tier_policies[i]; i++)
		if (!strcmp(tier_policies[i]->name, name))
			return tier_policies[i];
	return NULL;
}
