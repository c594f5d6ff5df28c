/* SPDX-License-Identifier: MIT */
/*
 * A doubly linked list.  An empty list points to itself.  An entry that is on no list also points
 * to itself, so that list_del() may be called twice.
 */
#ifndef PST_LIST_H
#define PST_LIST_H

#include "base/base.h"

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(l) ((struct list){ &(l), &(l) })

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_add_tail(struct list *head, struct list *e)
{
	e->prev = head->prev;
	e->next = head;
	head->prev->next = e;
	head->prev = e;
}

static inline void list_del(struct list *e)
{
	e->prev->next = e->next;
	e->next->prev = e->prev;
	list_init(e);
}

/* Move an entry from the list that it is on, if any, to the end of another. */
static inline void list_move_tail(struct list *head, struct list *e)
{
	e->prev->next = e->next;
	e->next->prev = e->prev;
	list_add_tail(head, e);
}

#define list_entry(e, type, member) container_of(e, type, member)
#define list_first(head, type, member) list_entry((head)->next, type, member)

/* The loop body may remove e; n is its successor. */
#define list_for_each_safe(e, n, head) \
	for ((e) = (head)->next, (n) = (e)->next; (e) != (head); (e) = (n), (n) = (e)->next)
#define list_for_each(e, head) for ((e) = (head)->next; (e) != (head); (e) = (e)->next)

#endif
