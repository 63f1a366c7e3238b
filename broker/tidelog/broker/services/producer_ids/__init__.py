"""InitProducerId, from blocks that the controller hands out."""
