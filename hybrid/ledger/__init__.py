"""Pure rules of money: periods, caps, replay, what to hold and what to charge."""
