"""What all layers share: records, checks of arguments, arithmetic, compilation, sharding."""
