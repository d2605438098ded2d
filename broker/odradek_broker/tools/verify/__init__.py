"""The check of a data directory: is it sound, and what would the next start repair or lose?"""
