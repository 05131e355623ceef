# Small CNN for regression: predicts numbers from an image, such as an angle or a position.
#
# Designed for small images, such as 32x32; any size from 16x16 works. Predicts one number for each target of
# the dataset, whatever their scale: the loss is the mean squared error in units of their standard deviations.
# Recommended settings: Adam, learning rate 0.001, batches of 32, 30 epochs, per-channel mean.
#
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=fixed batch_size=32 train_epochs=30 use_mean=pixel
# kinds: image-regression image-gradients generic
# images: 16-

from keras import layers


class UserModel(Tower):
    @model_property
    def inference(self):
        net = self.x / 64.0
        for number, filters in enumerate([16, 32, 64], 1):
            net = layers.Conv2D(
                filters,
                3,
                padding="same",
                activation="relu",
                kernel_initializer="he_normal",
                name=f"conv{number}",
            )(net)
            net = layers.MaxPooling2D(2)(net)
        net = layers.Flatten()(net)
        net = layers.Dense(128, activation="relu", kernel_initializer="he_normal", name="fc")(net)
        # No activation: the numbers are unbounded. They start near the mean of the targets.
        net = layers.Dense(self.nclasses, name="numbers")(net)
        return self.mean() + self.std() * net

    @model_property
    def loss(self):
        return digits.mse_loss(self.inference / self.std(), self.y / self.std())

    def mean(self):
        return tf.constant(self.target.mean, tf.float32)

    def std(self):
        # A number that never varies has a standard deviation of 0.
        return tf.constant([std or 1.0 for std in self.target.std], tf.float32)
