/* What a profile run writes down for the admission simulator (cora/runtime/admission): 64-bit words, in the order in
 * which things happen. The three top bits tell the kind.
 *
 *   use, make, end   the packet found or charged an entry, made it, or the entry went
 *   change           the packet stored another value into a field of the entry, or gave it another time-out class
 *   packet           a packet has left: its path and its time follow as two words of their own. Everything since the
 *                    packet before it is its doing, or came with the time that had passed.
 *
 * In all but the last follow a component number and the entry's number within the component. */
#ifndef CORA_MOVES_H
#define CORA_MOVES_H

#include <stdint.h>

enum cora_move { CORA_MOVE_USE, CORA_MOVE_MAKE, CORA_MOVE_END, CORA_MOVE_CHANGE, CORA_MOVE_PACKET };

#define CORA_MOVE_KIND 61
#define CORA_MOVE_COMPONENT 40
#define CORA_MOVE_COMPONENTS (1u << (CORA_MOVE_KIND - CORA_MOVE_COMPONENT))

#endif
