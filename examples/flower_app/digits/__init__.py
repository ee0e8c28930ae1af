"""An app of Flower whose averages are secure sums."""
